"""What an actor does with a shard of the pool, and the features that come of it.

    spec ─► listing ─► shards ─► executor ─► a report per shard ─► index of the feature set

    extraction        what to extract, and the path of an example through an actor: decode, transform, stack, run
    content_digest    the name of a set: a digest of data, model, code and batches, before any code runs
    extractor         one shard: read, computed and written; the work of an actor (cluster/actor_pool.py)
    stored_features   one shard of a table that has features: no model runs, so threads of this process do
    reference         features of training data, and dsa or lsa of a shard that is compared with them
    shards            the file of a shard, and the report in it
    feature_set       the index, written when all shards are there; the features of an earlier listing of the pool
    feature_files     columns of complete features, a cache of what is derived of them, and parts of a pool for samplers
    trial             some examples before any actor starts, and some stored ones, run again
    loaded_code       what Python really loaded, compared before features are used again

A shard's file is written whole, last, so it is the checkpoint: a file that exists is finished.
"""
