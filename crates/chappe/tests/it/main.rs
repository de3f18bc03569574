//! The integration tests of `chappe-chappe` in one program: linking one takes seconds.

mod accounts;
mod command_line;
mod data;
mod dead_letters;
mod demo_files;
mod demo_killed;
mod exi;
mod first_hour;
mod floors;
mod format_versions;
mod gsn;
mod notify;
mod output;
mod perf;
mod query;
mod reference;
mod registry;
mod watch_device;
mod wrappers;
mod write;
