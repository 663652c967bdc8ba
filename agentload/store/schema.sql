-- Absent is NULL, never 0. All *_ns are nanoseconds on the monotonic axis of their leg, except runs.created_ns, legs.wall_ns and those of
-- verdicts, probes, jobs, executions and alarms, which are nanoseconds since 1970. docs/database.md says more.
--
-- The one description of the newest tables: what a database lacks of them is added when it is next written (`database.py`), so a column that
-- comes later may be NULL or has a default.

-- The digest is that of this file and views.sql as the writer had them: who has the same need not compare tables and columns.
CREATE TABLE schema_version (version INTEGER NOT NULL, digest VARCHAR);

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
    started_ns BIGINT NOT NULL, drain_ns BIGINT, ended_ns BIGINT, salt VARCHAR NOT NULL, warmup BOOLEAN NOT NULL, void VARCHAR, machine VARCHAR, primed_ns BIGINT
);

CREATE TABLE calls_row (
    call_id BIGINT NOT NULL,
    run_id VARCHAR NOT NULL, leg INTEGER NOT NULL, arm VARCHAR NOT NULL, block INTEGER NOT NULL, pair INTEGER NOT NULL,
    workload VARCHAR NOT NULL, session VARCHAR NOT NULL, turn INTEGER NOT NULL, attempt INTEGER NOT NULL, retry_of VARCHAR,
    request_id VARCHAR NOT NULL, replica VARCHAR, gateway VARCHAR, due_ns BIGINT NOT NULL, released_ns BIGINT NOT NULL, dialled_ns BIGINT, opened_ns BIGINT,
    sent_ns BIGINT, first_ns BIGINT,
    first_answer_ns BIGINT, last_ns BIGINT, done_ns BIGINT, stamp_source VARCHAR NOT NULL, coalesced_reads INTEGER, token_rule VARCHAR, prompt_tokens INTEGER,
    context_tokens INTEGER NOT NULL, cached_tokens INTEGER, asked_tokens INTEGER NOT NULL, output_tokens INTEGER, thinking_tokens INTEGER,
    status VARCHAR NOT NULL, http_status SMALLINT, finish_reason VARCHAR, error VARCHAR, tail BOOLEAN NOT NULL, prime BOOLEAN NOT NULL DEFAULT false,
    deadline_ns BIGINT, prompt_hash VARCHAR, turns_left INTEGER,
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

-- Lists read the last three; they are NULL in older rows, whose decision says them.
CREATE TABLE verdicts (
    run_id VARCHAR NOT NULL, at_ns BIGINT NOT NULL, policy VARCHAR NOT NULL, decision JSON NOT NULL, headline VARCHAR, verdict VARCHAR, version VARCHAR
);

CREATE TABLE jobs (job VARCHAR NOT NULL, added_ns BIGINT NOT NULL, schedule VARCHAR NOT NULL, spec JSON NOT NULL);

CREATE TABLE executions (
    job VARCHAR NOT NULL, started_ns BIGINT NOT NULL, ended_ns BIGINT, due_ns BIGINT, outcome VARCHAR NOT NULL, run_id VARCHAR, detail JSON NOT NULL
);

CREATE TABLE alarms (
    job VARCHAR NOT NULL, kind VARCHAR NOT NULL, metric VARCHAR, raised_ns BIGINT NOT NULL, closed_ns BIGINT, run_id VARCHAR, detail JSON
);
