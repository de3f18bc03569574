//! A type of all kinds of members, and a sample of it that Cyclone DDS 11.0.1 wrote.

pub(crate) const POSE: &str = "
module lab {
  enum Mode { IDLE, MOVING, @value(7) FAILED };
  @mutable struct Extra { short load; string note; };
  @appendable struct Point { float x, y; };
  @appendable struct Pose {
    @key string robot;
    unsigned long long count;
    Mode mode;
    boolean isReady;
    Extra extra;
    Point at;
    sequence<octet> raw;
    sequence<long> ranges;
    sequence<Point> path;
  };
};";

/// In version 2 of CDR.
pub(crate) const DELIMITED_2: &str = "780000000300000072300000020000000000000007000000010000001900000000000010feff00000100005009000000\
    c3a472676572203200000000080000000000003f0000004003000000020202000200000002000000feffffff1c00000002000000080000000000\
    803f00000040080000000000803f00000040";
