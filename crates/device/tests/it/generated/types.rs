//! Types for the messages of thermometer, written by `chappe describe --rust`.

/// The messages of the service `Thermometer`.
pub mod thermometer {
    use chappe_device::message::{Fault, Message};

    /// The faults of `SetPeriod`.
    #[derive(Fault, Debug, Clone, PartialEq)]
    pub enum SetPeriodFault {
        OutOfRange(Range),
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    pub struct Celsius {
        #[attribute]
        pub sensor: String,
        #[unit("Cel")]
        pub celsius: f64,
    }

    #[derive(Message, Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Speed {
        Slow,
        #[name("very fast")]
        VeryFast,
    }

    /// The messages as the device's author writes them.
    #[derive(Message, Debug, Clone, PartialEq)]
    pub struct Period {
        /// The time between two events.
        #[unit("s")]
        pub seconds: f64,
        pub mode: Option<Speed>,
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    pub struct Range {
        pub low: f64,
        pub high: f64,
    }

    /// Event: `client.events::<Celsius>(service, TEMPERATURE)`.
    pub const TEMPERATURE: &str = "Temperature";

    /// Operation: `client.invoke::<Period, Period, SetPeriodFault>(service, SET_PERIOD,
    /// &request)`.
    pub const SET_PERIOD: &str = "SetPeriod";
}
