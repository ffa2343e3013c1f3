"""A page on which people label, one image at a time, served from one process to one or several of them."""
