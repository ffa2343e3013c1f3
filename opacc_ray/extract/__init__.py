"""What an actor does with a shard of the pool, and the features that come of it.

    spec ─► listing ─► shards ─► executor ─► a report per shard ─► index of the feature set

    model_code        the code that decides features: before any of it runs, and what Python really loaded
    inference         the path of an example: decode, transform, stack, run; the form of outputs
    extraction        what to extract
    extractor         a shard read, computed and written: the work of an actor (cluster/actor_pool.py)
    torch_model       a torch module, with hooks on its layers
    table_columns     a shard of a table that has features, and its slices: threads of this process read them
    reference         features of training data, and dsa or lsa (surprise): the distance of examples from them
    shards            the file of a shard, and the report in it
    feature_set       the name and the index of a set; the features of an earlier listing of the pool
    feature_files     columns of complete features, a cache of what is derived of them, and parts of a pool for samplers
    trial             some examples before any actor starts, and some stored ones, run again
    user_code         a process of its own for the user's code

A shard's file is written whole, last, so it is the checkpoint: a file that exists is finished.
"""
