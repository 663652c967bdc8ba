-- What is made of the tables. A database with other views gets these when it is next written; until then its readers bring them along. Views
-- alone are compared: a macro that comes to mean something else gets another name.

-- Stamps from gaps. A lambda copies every list that it looks back at, once for each element, so a plain running sum is quadratic: the list is
-- cut into about sqrt(n) pieces, summed within each, and shifted by the sum of the pieces before. A macro pastes its arguments, so a list that
-- is used twice is first bound as the parameter of a lambda over a list of one: list_transform([it], lambda name: …)[1].
CREATE MACRO pieces(list, size) AS list_transform([size], lambda n: list_transform(range(0, len(list), n), lambda i: list[i + 1 : i + n]))[1];

CREATE MACRO running_sums(list) AS list_transform([list], lambda l: list_transform(l, lambda element, i: coalesce(list_sum(l[:i]), 0)))[1];

CREATE MACRO piecewise_sums(pieces) AS list_transform(
    [running_sums(list_transform(pieces, lambda piece: coalesce(list_sum(piece), 0)))], lambda sums:
    flatten(list_transform(list_zip(pieces, list_prepend(0, sums[:-2])), lambda pair:
        list_transform(running_sums(pair[1]), lambda sum: pair[2] + sum)))
)[1];

CREATE MACRO chunk_stamps(start_ns, gap_us) AS list_transform(
    [pieces(gap_us, ceil(sqrt(len(gap_us)))::BIGINT)], lambda cut:
    list_transform(piecewise_sums(cut), lambda offset_us: (start_ns + 1000 * offset_us)::BIGINT)
)[1];

CREATE VIEW chunks AS
SELECT
    call_id, start_ns,
    CASE
        WHEN late_us IS NULL THEN gap_us
        ELSE list_transform(gap_us, lambda gap, i: CASE WHEN gap IS NULL THEN late_us[list_position(late_at, i)] ELSE gap END)
    END AS gap_us,
    coalesce(tokens, list_transform(gap_us, lambda gap: 1::USMALLINT)) AS tokens
FROM chunks_row;

CREATE VIEW calls AS
SELECT
    c.* EXCLUDE (call_id),
    CASE WHEN k.call_id IS NOT NULL THEN chunk_stamps(k.start_ns, k.gap_us) END AS chunk_ns,
    k.tokens AS chunk_tokens
FROM calls_row AS c LEFT JOIN chunks AS k ON k.call_id = c.call_id;

-- `calls` without the lists of their chunks, which cost a join even where nobody reads them.
CREATE VIEW attempts AS SELECT * EXCLUDE (call_id) FROM calls_row;

-- `calls`, with what each call took. agentload/model/metrics.py defines the same over one row; a test holds them equal.
CREATE VIEW turns AS
WITH RECURSIVE chain AS (
    SELECT request_id, retry_of, due_ns, released_ns FROM calls_row WHERE retry_of IS NOT NULL
    UNION
    SELECT a.request_id, b.retry_of, b.due_ns, b.released_ns FROM chain AS a JOIN calls_row AS b ON b.request_id = a.retry_of
),
retried AS (SELECT request_id, min(due_ns) AS due_ns, min(released_ns) AS released_ns FROM chain GROUP BY request_id),
held_back AS (
    SELECT run_id FROM runs
    WHERE (study->>'$.kind') = 'sweep' OR (study->>'$.capacity') IS NOT NULL
        OR (study->>'$.load.sessions') IS NOT NULL OR (study->>'$.load.max_in_flight') IS NOT NULL
        -- As older versions wrote it.
        OR (options->>'$.load.max_in_flight') IS NOT NULL OR (options->>'$.load.arrivals.kind') = 'ClosedLoop'
),
clocked AS (
    SELECT c.*, coalesce(r.released_ns, c.released_ns) AS began_ns,
        CASE WHEN h.run_id IS NULL THEN coalesce(r.due_ns, c.due_ns) ELSE coalesce(r.released_ns, c.released_ns) END AS since_ns,
        coalesce(output_tokens, streamed_tokens)::BIGINT - coalesce(first_chunk_tokens, 1) AS tokens_after_first
    FROM calls AS c LEFT JOIN held_back AS h USING (run_id) LEFT JOIN retried AS r USING (request_id)
)
SELECT * EXCLUDE (tokens_after_first),
    (first_ns - since_ns) / 1e6 AS ttft_ms,
    CASE WHEN tokens_after_first > 0 AND last_ns > first_ns THEN (last_ns - first_ns) / 1e6 / tokens_after_first END AS tpot_ms,
    (done_ns - since_ns) / 1e6 AS turn_ms,
    -- Without a connection that was opened the difference is NULL, and greatest() leaves it out.
    (sent_ns - released_ns - greatest(0, opened_ns - greatest(released_ns, dialled_ns))) / 1e6 AS lag_ms,
    cached_tokens / nullif(prompt_tokens, 0) AS hit_rate
FROM clocked;

-- `chunks`, with whose they were.
CREATE VIEW streams AS
SELECT run_id, arm, workload, request_id, status, start_ns, gap_us, tokens FROM calls_row JOIN chunks USING (call_id);

-- Blocks that count: played to their end, and neither to warm up nor invalid.
CREATE VIEW played AS SELECT * FROM blocks WHERE NOT warmup AND void IS NULL AND ended_ns IS NOT NULL;

-- Runs as lists show them, with their place in the order in which they were stored.
CREATE VIEW listed AS
SELECT r.*, arms, status, job
FROM (SELECT *, row_number() OVER () AS place FROM runs) AS r
LEFT JOIN (SELECT run_id, list(arm ORDER BY position) AS arms FROM arms GROUP BY run_id) USING (run_id)
LEFT JOIN (SELECT run_id, arg_max(status, leg) AS status FROM legs GROUP BY run_id) USING (run_id)
LEFT JOIN (SELECT run_id, max(job) AS job FROM executions WHERE run_id IS NOT NULL GROUP BY run_id) USING (run_id);

-- Decisions in one line: the latest of each run and policy, and what a job's executions came to whose runs have none.
CREATE VIEW decided AS
SELECT d.*, kind, name, model
FROM (
    SELECT run_id, at_ns, policy, NULL AS job, headline, verdict, version
    FROM (
        SELECT * EXCLUDE (decision) FROM verdicts WHERE headline IS NOT NULL
        UNION ALL  -- as older versions stored them: whole decisions are read
        SELECT run_id, at_ns, policy, decision->>'headline', decision->'decision'->'choice'->>'verdict', NULL
        FROM verdicts WHERE headline IS NULL
    )
    QUALIFY at_ns = max(at_ns) OVER (PARTITION BY run_id, policy)
    UNION ALL
    SELECT run_id, coalesce(ended_ns, started_ns), NULL, job, detail->>'headline', NULL, NULL
    FROM executions ANTI JOIN verdicts USING (run_id) WHERE run_id IS NOT NULL
) AS d LEFT JOIN runs USING (run_id) WHERE headline IS NOT NULL;

-- Executions as dashboards plot them, a row a change against the reference; those without one have a row of their own.
CREATE VIEW changes AS
SELECT job, make_timestamp_ns(started_ns) AS started, make_timestamp_ns(due_ns) AS due, (ended_ns - started_ns) / 1e9 AS seconds,
    outcome, run_id, detail->>'reason' AS reason, detail->>'reference' AS reference, change->>'arm' AS arm,
    change->>'metric' AS metric, exp((change->>'log_ratio')::DOUBLE) - 1 AS change,
    exp((change->>'log_ratio')::DOUBLE - 1.96 * (change->>'error')::DOUBLE) - 1 AS low,
    exp((change->>'log_ratio')::DOUBLE + 1.96 * (change->>'error')::DOUBLE) - 1 AS high
FROM executions LEFT JOIN LATERAL (SELECT unnest((detail->'changes')::JSON[]) AS change) ON true;

CREATE VIEW raised AS
SELECT job, kind, metric, make_timestamp_ns(raised_ns) AS raised, make_timestamp_ns(closed_ns) AS closed, run_id, detail->>'message' AS message
FROM alarms;

-- Samples, also by the wall clock: each leg has a monotonic clock of its own.
CREATE VIEW readings AS
SELECT s.*, at_ns - monotonic_ns + wall_ns AS wall_ns FROM samples AS s JOIN legs USING (run_id, leg);

-- Answers with what was noticed of them; NULL where nobody looked.
CREATE VIEW graded AS
SELECT * EXCLUDE (signals), signals ->> 'finish_reason' AS finish_reason,
    CASE WHEN signals IS NOT NULL THEN (signals ->> 'garbage') IS NOT NULL END AS is_garbage,
    (signals ->> 'agreement')::DOUBLE / nullif((signals ->> 'agreement_of')::DOUBLE, 0) AS agreement
FROM answers;

-- What the calls of each run's whole trace are like, a row a quantile: values that a share of its calls is not above.
CREATE VIEW traced AS
SELECT run_id, shape->>'workload' AS workload, (shape->>'calls')::BIGINT AS calls, quantity,
    (place - 1) / greatest(1, len(points) - 1) AS share, points[place] AS value
FROM (
    SELECT run_id, shape, quantity, (shape->quantity)::DOUBLE[] AS points
    FROM (SELECT run_id, unnest((options->'trace_shape')::JSON[]) AS shape FROM runs)
    CROSS JOIN (SELECT unnest(['context_tokens', 'new_tokens', 'output_tokens', 'wait_s', 'hit_rate']) AS quantity)
) CROSS JOIN LATERAL (SELECT unnest(range(1, len(points) + 1)) AS place);
