"""The full measures of a model on a split, from what it says of each example.

* `examples`: what is kept of the logits of an example; a few numbers, whatever the number of classes.
* `classify`: the examples of a split, with the steps of training or with adaptive ones.
* `calibration`: how far the confidence is from the accuracy.
* `measure`: all measures together.
* `spread`: mean and standard deviation over runs.
"""
