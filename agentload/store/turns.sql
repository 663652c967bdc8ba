-- The view `turns`: `calls`, with what each call took. agentload/model/metrics.py defines the same over one row; a test holds them equal.
-- Readers bring it along, so that a database that was made before it has it too.
WITH RECURSIVE attempts AS (
    SELECT request_id, retry_of, due_ns, released_ns FROM calls_row WHERE retry_of IS NOT NULL
    UNION
    SELECT a.request_id, b.retry_of, b.due_ns, b.released_ns FROM attempts AS a JOIN calls_row AS b ON b.request_id = a.retry_of
),
retried AS (SELECT request_id, min(due_ns) AS due_ns, min(released_ns) AS released_ns FROM attempts GROUP BY request_id),
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
    CASE WHEN tokens_after_first > 0 THEN (last_ns - first_ns) / 1e6 / tokens_after_first END AS tpot_ms,
    (done_ns - since_ns) / 1e6 AS turn_ms,
    (sent_ns - greatest(released_ns, opened_ns)) / 1e6 AS lag_ms,
    cached_tokens / nullif(prompt_tokens, 0) AS hit_rate
FROM clocked
