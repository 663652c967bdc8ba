"""One leg of a run on live endpoints: meet the servers, play, look at them between rounds, write down what is finished."""
