"""What an actor does with a shard: run the model, record its layers, write features."""
