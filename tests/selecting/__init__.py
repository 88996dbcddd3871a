"""Parts of sources, and sources put together."""
