//! The tables of the registry, in the schema `chappe`.

/// The version of the tables.
pub(crate) const VERSION: i32 = 1;

/// The lock of the session that writes a snapshot: `chappe` in ASCII.
pub(crate) const SNAPSHOT_LOCK: i64 = 0x6368_6170_7065;

/// The channel on which a transaction announces its records.
pub(crate) const CHANNEL: &str = "chappe_registry";

/// What each session sets first. A node may not acknowledge what is not durable, and a transaction that waits
/// for a lock of a dead node must end.
pub(crate) const SESSION: &str = "
    SET default_transaction_isolation = 'read committed';
    SET statement_timeout = '30s';
    SET lock_timeout = '10s';
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') IN ('off', 'local');
    LISTEN chappe_registry";

/// Makes the tables, unless they exist. The lock is that of this transaction: nodes that start together would
/// fail otherwise.
pub(crate) const CREATE: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(109261828583526);
    CREATE SCHEMA IF NOT EXISTS chappe;
    CREATE TABLE IF NOT EXISTS chappe.registry_head (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        version integer NOT NULL,
        last bigint NOT NULL,
        snapshot bigint NOT NULL
    );
    INSERT INTO chappe.registry_head (version, last, snapshot) VALUES (1, 0, 1)
        ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS chappe.registry_record (
        position bigint PRIMARY KEY,
        body bytea NOT NULL,
        written timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE IF NOT EXISTS chappe.registry_writer (
        id text PRIMARY KEY,
        fence bigint NOT NULL DEFAULT 0,
        request bigint NOT NULL DEFAULT 0,
        seen timestamptz NOT NULL DEFAULT now()
    );
    CREATE OR REPLACE FUNCTION chappe.registry_append(
        writer text, own_fence bigint, number bigint, expected bigint, bodies bytea[]
    ) RETURNS bigint LANGUAGE plpgsql AS $function$
    DECLARE
        current bigint;
        after bigint := expected + cardinality(bodies);
    BEGIN
        SELECT head.last INTO current FROM chappe.registry_head AS head FOR UPDATE;
        IF current <> expected THEN
            RETURN -1;
        END IF;
        UPDATE chappe.registry_writer AS w SET request = number, seen = now()
            WHERE w.id = writer AND w.fence = own_fence AND w.request = number - 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the writer has another session';
        END IF;
        INSERT INTO chappe.registry_record (position, body)
            SELECT expected + given.at, given.body
            FROM unnest(bodies) WITH ORDINALITY AS given (body, at);
        UPDATE chappe.registry_head SET last = after;
        PERFORM pg_notify('chappe_registry', '');
        RETURN after;
    END
    $function$;
    COMMIT";

/// Whether the tables exist.
pub(crate) const EXISTS: &str = "SELECT to_regclass('chappe.registry_head') IS NOT NULL";

/// The version of the tables.
pub(crate) const READ_VERSION: &str = "SELECT version FROM chappe.registry_head";

/// The last position, and the start of the newest snapshot.
pub(crate) const HEAD: &str = "SELECT last, snapshot FROM chappe.registry_head";

/// Appends; the last position, or -1 if another writer was first.
pub(crate) const APPEND: &str = "SELECT chappe.registry_append($1, $2, $3, $4, $5)";

/// Records from a position on: a few, and of so many bytes.
pub(crate) const RECORDS: &str = "
    SELECT position, body FROM (
        SELECT position, body,
            sum(octet_length(body)) OVER (ORDER BY position) - octet_length(body) AS before
        FROM chappe.registry_record WHERE position >= $1 AND position < $1 + 256
    ) AS part WHERE before < 8388608 ORDER BY position";

/// Makes the writer known; forgets those that ended a month ago.
pub(crate) const ENTER: &str = "
    WITH old AS (
        DELETE FROM chappe.registry_writer WHERE seen < now() - interval '30 days' AND id <> $1
    )
    INSERT INTO chappe.registry_writer (id) VALUES ($1)
        ON CONFLICT DO NOTHING";

/// Gives the writer a new fence, so that a transaction with an older one cannot commit any more; and the
/// number of the last one that did.
pub(crate) const FENCE: &str = "
    UPDATE chappe.registry_writer SET fence = fence + 1, seen = now() WHERE id = $1
        RETURNING fence, request";

/// Notes the start of a snapshot.
pub(crate) const SNAPSHOT: &str =
    "UPDATE chappe.registry_head SET snapshot = greatest(snapshot, $1)";

/// Removes some records before the snapshot. Those of the last minutes stay for nodes that are away for a
/// moment.
pub(crate) const TRIM: &str = "
    DELETE FROM chappe.registry_record WHERE position IN (
        SELECT position FROM chappe.registry_record
        WHERE position < (SELECT snapshot FROM chappe.registry_head)
            AND written < now() - interval '10 minutes'
        ORDER BY position LIMIT 2000
    )";
