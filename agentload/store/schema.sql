-- Absent is NULL, never 0. All *_ns are nanoseconds on the monotonic axis of their leg, except runs.created_ns, legs.wall_ns and those of
-- verdicts, probes, jobs, executions and alarms, which are nanoseconds since 1970. docs/database.md says more.

CREATE TABLE schema_version (version INTEGER NOT NULL);

-- How far each journal has been loaded, and a checksum of the bytes before that, which tells a journal from another at the same path.
CREATE TABLE journals (path VARCHAR NOT NULL, loaded_bytes BIGINT NOT NULL, mark UINTEGER NOT NULL);

CREATE TABLE runs (
    run_id VARCHAR NOT NULL, kind VARCHAR NOT NULL, name VARCHAR NOT NULL, created_ns BIGINT NOT NULL, trace_name VARCHAR, trace_hash VARCHAR,
    model VARCHAR, design VARCHAR, seed BIGINT NOT NULL, version VARCHAR NOT NULL, command VARCHAR NOT NULL, options JSON NOT NULL,
    study JSON
);

CREATE TABLE legs (
    run_id VARCHAR NOT NULL, leg INTEGER NOT NULL, host VARCHAR NOT NULL, boot_id VARCHAR, monotonic_ns BIGINT NOT NULL, wall_ns BIGINT NOT NULL,
    ended_ns BIGINT, status VARCHAR NOT NULL, health JSON
);

CREATE TABLE arms (
    run_id VARCHAR NOT NULL, arm VARCHAR NOT NULL, position INTEGER NOT NULL, url VARCHAR, model VARCHAR, machine VARCHAR, profile VARCHAR,
    expected JSON, gpu VARCHAR, gpus INTEGER, usd_per_gpu_hour DOUBLE, tensor_parallel INTEGER, data_parallel INTEGER, shape JSON
);

CREATE TABLE fingerprints (
    run_id VARCHAR NOT NULL, leg INTEGER NOT NULL, arm VARCHAR NOT NULL, at_ns BIGINT NOT NULL, moment VARCHAR NOT NULL, round INTEGER NOT NULL,
    facts JSON NOT NULL
);

CREATE TABLE blocks (
    run_id VARCHAR NOT NULL, leg INTEGER NOT NULL, pair INTEGER NOT NULL, block INTEGER NOT NULL, arm VARCHAR NOT NULL, round INTEGER NOT NULL,
    started_ns BIGINT NOT NULL, drain_ns BIGINT, ended_ns BIGINT, salt VARCHAR NOT NULL, warmup BOOLEAN NOT NULL, void VARCHAR, machine VARCHAR
);

CREATE TABLE calls_row (
    call_id BIGINT NOT NULL,
    run_id VARCHAR NOT NULL, leg INTEGER NOT NULL, arm VARCHAR NOT NULL, block INTEGER NOT NULL, pair INTEGER NOT NULL,
    workload VARCHAR NOT NULL, session VARCHAR NOT NULL, turn INTEGER NOT NULL, attempt INTEGER NOT NULL, retry_of VARCHAR,
    request_id VARCHAR NOT NULL, replica VARCHAR, gateway VARCHAR, due_ns BIGINT NOT NULL, released_ns BIGINT NOT NULL, opened_ns BIGINT, sent_ns BIGINT, first_ns BIGINT,
    first_answer_ns BIGINT, last_ns BIGINT, done_ns BIGINT, stamp_source VARCHAR NOT NULL, coalesced_reads INTEGER, token_rule VARCHAR, prompt_tokens INTEGER,
    context_tokens INTEGER NOT NULL, cached_tokens INTEGER, asked_tokens INTEGER NOT NULL, output_tokens INTEGER, thinking_tokens INTEGER,
    status VARCHAR NOT NULL, http_status SMALLINT, finish_reason VARCHAR, error VARCHAR, tail BOOLEAN NOT NULL, prime BOOLEAN NOT NULL,
    deadline_ns BIGINT, prompt_hash VARCHAR,
    -- Of the call's chunks, so that figures about calls need not read them: how many, tokens of the first and of all, p99 of the gaps.
    chunk_count INTEGER, first_chunk_tokens USMALLINT, streamed_tokens INTEGER, gap_p99_us INTEGER
);

-- One row a call that streamed; `chunks` is the view to read. gap_us has an element a chunk, NULL for the first, which has no gap before it, and
-- for the few gaps that are far longer than their neighbours: those lie in late_us, their places (from 1) in late_at. Packed with the others
-- they would cost all of them their bits: 2.2 bytes a stamp on a loaded server instead of 1.6. late_* is NULL where there is none, tokens
-- where all chunks carried one.
CREATE TABLE chunks_row (
    call_id BIGINT NOT NULL, start_ns BIGINT NOT NULL, gap_us INTEGER[] NOT NULL, late_at INTEGER[], late_us INTEGER[], tokens USMALLINT[]
);

CREATE TABLE samples (
    run_id VARCHAR NOT NULL, leg INTEGER NOT NULL, arm VARCHAR NOT NULL, at_ns BIGINT NOT NULL, name VARCHAR NOT NULL, value DOUBLE NOT NULL,
    labels JSON
);

CREATE TABLE answers (
    run_id VARCHAR NOT NULL, arm VARCHAR NOT NULL, task VARCHAR NOT NULL, item VARCHAR NOT NULL, context_tokens INTEGER NOT NULL, depth DOUBLE,
    repetition INTEGER NOT NULL, score DOUBLE, "right" BOOLEAN, answer VARCHAR, request_id VARCHAR, signals JSON
);

CREATE TABLE probes (
    run_id VARCHAR NOT NULL, arm VARCHAR NOT NULL, probe VARCHAR NOT NULL, at_ns BIGINT NOT NULL, settings JSON NOT NULL, outcome VARCHAR NOT NULL,
    detail VARCHAR
);

CREATE TABLE verdicts (run_id VARCHAR NOT NULL, at_ns BIGINT NOT NULL, policy VARCHAR NOT NULL, decision JSON NOT NULL);

CREATE TABLE jobs (job VARCHAR NOT NULL, added_ns BIGINT NOT NULL, schedule VARCHAR NOT NULL, spec JSON NOT NULL);

CREATE TABLE executions (
    job VARCHAR NOT NULL, started_ns BIGINT NOT NULL, ended_ns BIGINT, due_ns BIGINT, outcome VARCHAR NOT NULL, run_id VARCHAR, detail JSON NOT NULL
);

CREATE TABLE alarms (
    job VARCHAR NOT NULL, kind VARCHAR NOT NULL, metric VARCHAR, raised_ns BIGINT NOT NULL, closed_ns BIGINT, run_id VARCHAR, detail JSON
);

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
