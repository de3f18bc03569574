//! The integration tests of `chappe-soap` in one program: linking one takes seconds.

mod envelope;
mod lazy;
mod message;
mod nil;
mod rust;
mod schema;
mod security;
mod wsdl;
