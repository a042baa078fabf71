// Tools for testing agents.

export {};
