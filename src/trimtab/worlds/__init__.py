"""The tiny world: a generated language with an exact gold score, for claims about training that need many seeds.

`tiny` holds the language and its texts, `gold` the exact score, `judge` the simulated judge, `model` the tokenizer and
the untrained model (torch), `project` the files that `trimtab init --preset tiny` writes. Only the simulated judge and
the evaluation may import `gold`.
"""
