-- What a child was given of the conversation of the run that started it.
ALTER TABLE agent_execution ADD COLUMN shared_context TEXT;
