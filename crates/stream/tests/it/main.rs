//! The integration tests of `chappe-stream` in one program: linking one takes seconds.

mod aggregates;
mod bindings;
mod column_types;
mod commands;
mod compiled_like_sqlite;
mod descriptors;
mod exchange;
mod heart_rate;
mod hostile_statements;
mod repair;
mod retention;
mod sqlite_windows;
mod statements;
mod stored_streams;
mod turns_and_keys;
mod virtual_sensor;
mod whole_answers;
mod windows;
