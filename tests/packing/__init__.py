"""Images into record files, converted, checked; what is left after a kill."""
