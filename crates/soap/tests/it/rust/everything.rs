//! Types for the messages of everything.wsdl, written by `chappe describe --rust`.

/// The messages of the service `Plant`.
pub mod plant {
    use std::time::{Duration, SystemTime};
    use chappe_soap::message::{Fault, Message, Samples};

    /// The faults of `start-pump`.
    #[derive(Fault, Debug, Clone, PartialEq)]
    pub enum StartPumpFault {
        TooHot(TooHot),
        #[name("busy")]
        Busy,
    }

    #[derive(Message, Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Mode {
        #[name("off")]
        Off,
        #[name("half speed")]
        HalfSpeed,
        #[name("Self")]
        SelfType,
    }

    /// A choice in `Pump`.
    #[derive(Message, Debug, Clone, PartialEq)]
    #[message(namespace = "urn:plant")]
    pub enum PumpChoice {
        #[name("open")]
        Open(()),
        #[name("level")]
        Level(f64),
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    #[message(namespace = "urn:plant")]
    pub struct Pump {
        // Attribute lang of the namespace urn:shared is not read, and not written.
        pub id: String,
        pub mode: Mode,
        /// Of the motor.
        /// In the schema: xs:int from 0 to 100.
        #[unit("%")]
        pub power: i32,
        pub r#type: Option<String>,
        #[name("self")]
        pub self_: bool,
        pub at: SystemTime,
        #[name("run-time")]
        pub run_time: Duration,
        pub picture: Vec<u8>,
        /// In the schema: xs:hexBinary.
        pub raw: Option<String>,
        pub wave: Samples<f32>,
        pub alarm: Vec<Option2>,
        #[unit("Cel")]
        pub probe: Vec<Option<f64>>,
        // The device may send `xsi:nil` in place of a value: such a message is refused.
        pub owner: String,
        #[choice]
        pub choice: Option<PumpChoice>,
        // One of the next groups of elements is there; which, no type says.
        pub low: Option<i32>,
        pub high: Option<i32>,
        pub exact: Option<i32>,
        pub place: Option<Place>,
        // Element Remark of the namespace urn:shared is ignored when read, and not written.
        // Element thing has no type: any content is allowed; it is ignored when read, and not
        // written.
        pub inner: Option<Box<Pump>>,
        pub parts: Vec<Pump>,
        pub extra: Option<String>,
        // Any further elements may be here (xs:any): they are ignored when read, and not
        // written.
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    #[message(namespace = "urn:plant")]
    pub enum Started {
        At(SystemTime),
        Not(()),
        Then(StartedThen),
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    #[message(namespace = "urn:plant")]
    pub struct TooHot {
        /// In the schema: xs:decimal.
        #[unit("Cel")]
        pub celsius: f64,
    }

    #[derive(Message, Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Option2Type {
        A,
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    pub struct Option2 {
        #[attribute]
        pub unit: String,
        #[attribute]
        pub mode: Option<Mode>,
        #[attribute]
        pub r#type: Option<Option2Type>,
        #[text]
        pub text: f64,
    }

    /// A place in a building.
    #[derive(Message, Debug, Clone, PartialEq)]
    #[message(namespace = "")]
    pub struct Place {
        pub floor: i32,
    }

    #[derive(Message, Debug, Clone, PartialEq)]
    #[message(namespace = "urn:plant")]
    pub struct StartedThen {
        pub minutes: i32,
    }

    /// Starts a pump, and says when.
    ///
    /// Operation: `client.invoke::<Pump, Started, StartPumpFault>(service, START_PUMP,
    /// &request)`.
    pub const START_PUMP: &str = "start-pump";

    /// Operation without answer: `client.send::<()>(service, STOP, &request)`.
    pub const STOP: &str = "Stop";

    // Operation Draw has no types: it is abstract.

    // Operation Old has no types: a message has no element (style RPC, or no parts).

    /// Event: `client.events::<u16>(service, LEVEL)`.
    pub const LEVEL: &str = "Level";

    // Event Ask has no types: the event waits for an answer.

    // Operation Stop has no types: an operation of another port type has this name, and is the
    // one that it calls.
}
