"""One page for several models: a record of what each configuration did with each workload, and the decision over all of them."""
