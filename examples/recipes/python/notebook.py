"""A notebook: cells that are run in any order, and again after an edit. `# %%` begins a cell for Jupyter and editors."""

# %%
import flovyn
from flovyn import AgentContext, agent, task

# %% Declare; run this cell again after an edit. Decorating registers nothing.


@task
async def count_words(text: str) -> int:
    return len(text.split())


@agent
async def counter(ctx: AgentContext, text: str) -> int:
    return await count_words(text)


# %% Run to the end, here and now. The same id again gives the recorded result.
answer = flovyn.run(counter, "how many words are these", id="words-1")
print(answer)

# %% Or serve: run again, this puts the newest functions in the place of the old ones.
client = await flovyn.shared(agents=[counter], tasks=[count_words])  # noqa: F704, PLE1142
handle = await client.start(counter, "three more words")  # noqa: F704, PLE1142
print(await handle.result(timeout=20))  # noqa: F704, PLE1142
