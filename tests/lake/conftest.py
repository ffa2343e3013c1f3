from pool_places import folder, store

__all__ = ["folder", "store"]
