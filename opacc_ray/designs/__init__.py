"""Parts that methods share: strata of one variable, and fixed-size draws with unequal probability."""
