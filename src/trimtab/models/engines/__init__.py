"""Generation engines: who samples the responses of a rollout, behind one protocol.

`native` and `transformers` run the model that they are handed, with the same random numbers. The two vLLM engines hold
weights of their own, which `sync` brings up to date.
"""
