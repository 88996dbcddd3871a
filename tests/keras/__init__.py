"""``SafeSequence`` in ``fit``, ``evaluate`` and ``predict``, on every backend of Keras."""
