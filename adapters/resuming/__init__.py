"""Training checkpoints and resuming from them, shared by both front ends.

``CheckpointDir`` reads and writes the files and compares the training with the saved one. Its
``Schedule`` decides how often, and its ``Lock`` keeps a second training out of the folder. No
module here depends on a framework.
"""
