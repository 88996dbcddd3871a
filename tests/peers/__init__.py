"""Other loaders: Keras's own tests with ours in its place, and facts about the others."""
