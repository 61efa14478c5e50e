//! The shared library's name, under which programs that are linked with it look for it; and code that threads run is not unloaded under them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libplimsoll_engine.so.0,-z,nodelete");
}
