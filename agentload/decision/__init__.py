"""Decide which arm to run: ask the cheapest question that can
still change the decision, until none can or the budget is spent.

`play.Deciding` turns in one loop: know what the run holds (`known`), choose what
may come next (`sequence`, priced by `questions`), have it played (`carry_out`),
write it down (`ledger`), and know again. What is asked, in this order:

1. checks: are these the servers that they are said to be, and how much do they
hold? 2. one block pair. 3. the service level with a single session; a canary and a
screen of answers, for a twentieth of the budget: what is broken ends here. 4. block
pairs, look by look. 5. step times, and then the load that an arm carries, where a
level or a peak was named. 6. paired answers, the dearest, only of an arm that pays.

An arm that takes shorter contexts is compared apart before pairs are played
(`apart`); a load that this client cannot send is halved (`lighter`). Both go on
in runs of their own, which the ledger names. These hold whatever happens:

- What was answered is never asked again: it is read from the run, also by whoever resumes it.
- Nothing is played that the budget does not hold, but the
  first pair; a question that was killed has spent its time.
- A decision that is resumed takes the steps that it would have
  taken: what is next follows from the rows and the ledger alone.
"""
