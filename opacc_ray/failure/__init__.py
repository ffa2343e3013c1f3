"""How likely each example is to fail, from what the model says of it and the labels so far."""
