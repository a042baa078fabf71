//! Builds the server again when the console has been built again.

fn main() {
    println!("cargo::rerun-if-changed=console");
}
