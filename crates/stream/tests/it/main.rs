//! The integration tests of `chappe-stream` in one program: linking one takes seconds.

mod aggregates;
mod bindings;
mod column_types;
mod compiled_like_sqlite;
mod descriptors;
mod exchange;
mod heart_rate;
mod hostile_statements;
mod repair;
mod retention;
mod sqlite_windows;
mod stored_streams;
mod virtual_sensor;
mod whole_answers;
mod windows;
