//! With the feature `cyclone`: finds Cyclone DDS on this system and compiles the C shim for it. Without the
//! feature it does nothing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "cyclone")]
    cyclone();
}

#[cfg(feature = "cyclone")]
fn cyclone() {
    const SHIM: &str = "src/unsafe_cyclone/shim.c";
    println!("cargo::rerun-if-changed={SHIM}");
    // Other versions name the library structs that the shim reads differently.
    let found = pkg_config::Config::new()
        .cargo_metadata(false)
        .range_version("0.10.2".."0.11")
        .probe("CycloneDDS");
    let library = match found {
        Ok(library) => library,
        Err(error) => {
            println!(
                "cargo::error=the feature `cyclone` wants Cyclone DDS 0.10 with its headers \
                 (Debian: cyclonedds-dev, pkg-config): {error}"
            );
            return;
        }
    };
    let mut build = cc::Build::new();
    build
        .file(SHIM)
        .includes(&library.include_paths)
        .std("gnu11")
        .define("NDEBUG", None)
        .define("DDS_NDEBUG", None);
    build.compile("chappe_cyclone");
    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for name in &library.libs {
        println!("cargo::rustc-link-lib={name}");
    }
}
