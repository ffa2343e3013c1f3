"""An extension of opacc_ray; pyproject.toml registers its modules."""
