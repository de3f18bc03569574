//! Everything that yields stream elements: devices of any WSDL, SDC devices.
