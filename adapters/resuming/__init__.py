"""Training checkpoints and resuming from them, shared by both front ends.

``checkpoint_dir.py`` reads and writes the files and compares the training with the saved one,
``schedule.py`` decides how often, and ``lock.py`` keeps a second training out of the folder. No
module here depends on a framework.
"""
