"""Web page for labelling."""
