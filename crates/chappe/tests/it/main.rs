//! The integration tests of `chappe-chappe` in one program: linking one takes seconds.

mod accounts;
mod command_line;
mod data;
mod dead_letters;
mod demo_files;
mod demo_killed;
mod exi;
mod floors;
mod gsn;
mod perf;
mod query;
mod reference;
mod registry;
mod wrappers;
mod write;
