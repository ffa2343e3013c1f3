"""A run that tests copy and damage, and what is stated of it next."""
