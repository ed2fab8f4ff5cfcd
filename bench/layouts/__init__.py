"""What the layouts of `model.trainable` cost."""
