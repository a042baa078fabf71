//! Tells the linker what an addon of Node needs on this platform.

fn main() {
    napi_build::setup();
}
