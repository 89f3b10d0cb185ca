"""What runs in the worker process; imports nothing but torch, numpy and the layers below."""
