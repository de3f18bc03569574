//! Types for the messages of pump.wsdl, written by `chappe describe --rust`.

/// The messages of the service `Pump`.
pub mod pump {
    use chappe_device::message::{Fault, Message};

    /// The faults of `Fill`.
    #[derive(Fault, Debug, Clone, PartialEq)]
    pub enum FillFault {
        Overflow(Overflow),
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    pub struct Fill {
        pub tank: String,
        pub target: Target,
        pub step: Vec<Step>,
        pub note: Option<String>,
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    pub struct FillResponse {
        pub volume: Volume,
        pub step: Vec<Step>,
        pub note: Option<String>,
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    pub struct Overflow {
        pub limit: f64,
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    pub struct Stop {
        pub tank: String,
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    pub enum Target {
        #[name("litres")]
        Litres(f64),
        #[name("level")]
        Level(i32),
    }

    #[derive(Message, Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Speed {
        #[name("slow")]
        Slow,
        #[name("fast")]
        Fast,
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    pub struct Step {
        #[attribute]
        pub number: u32,
        pub seconds: f64,
        pub speed: Speed,
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    pub struct Volume {
        #[attribute]
        pub unit: String,
        #[text]
        pub text: f64,
    }

    /// Operation: `client.invoke::<Fill, FillResponse, FillFault>(service, FILL, &request)`.
    pub const FILL: &str = "Fill";

    /// Operation without answer: `client.send::<Stop>(service, STOP, &request)`.
    pub const STOP: &str = "Stop";
}
