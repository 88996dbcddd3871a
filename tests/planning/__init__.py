"""What training asks of storage and of workers."""
