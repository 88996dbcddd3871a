"""What the package promises, by public names alone: these tests outlive its internals."""
