#!/usr/bin/env node
// The `flovyn` command.

const { native } = require("../dist/native.js");

process.exitCode = native.cli(["flovyn", ...process.argv.slice(2)]);
