"""Decide which arm to run by asking the cheapest question that can still change the decision.

Questions are asked until none can change the decision or the budget is spent.
`play.Deciding` repeats one loop: read what the run holds (`known`), choose what may come next
(`sequence`, priced by the questions), have it played within the `budget`, write it down (`ledger`).
The questions, in this order:

1. checks: are these the servers that they are said to be, and how much do they hold?
2. one block pair.
3. the service level with a single session; a canary and a screen of answers, for a twentieth of
   the budget: an arm whose answers are broken ends here.
4. block pairs, look by look.
5. step times, and then the load that an arm carries, where a level or a peak was named.
6. paired answers, the dearest, only of an arm that is faster or carries more.

An arm that takes shorter contexts is compared by itself before pairs are played (`apart`); a load
that this client cannot send in time is halved (`lighter`). Both continue in runs of their own,
which the ledger names. These rules always hold:

- An answered question is never asked again: its answer is read from the run, also after a
  resumption.
- Nothing but the first pair is played that the budget does not hold; a question that was killed
  has spent its time.
- A resumed decision takes the steps that it would have taken: what is next follows from the rows
  and the ledger alone.
"""
