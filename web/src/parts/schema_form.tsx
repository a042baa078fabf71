// A form from a JSON Schema.
import { fieldsOf } from "@flovyn/react/transcript";
import type { FormValues } from "@flovyn/react/transcript";
import { Check, SelectField, TextArea, TextField } from "./field";

export function SchemaForm({ schema, values, onChange }: { schema: unknown; values: FormValues; onChange: (values: FormValues) => void }) {
  return (
    <div className="flex flex-col gap-3">
      {fieldsOf(schema).map((field) => {
        const label = field.isRequired ? field.label : `${field.label} (optional)`;
        const given = values[field.name];
        const text = typeof given === "string" ? given : "";
        const set = (value: string | boolean) => onChange({ ...values, [field.name]: value });
        if (field.kind === "boolean") return <Check key={field.name} label={field.label} checked={given === true} onChange={(event) => set(event.target.checked)} />;
        if (field.kind === "choice") {
          return (
            <SelectField key={field.name} label={label} hint={field.hint} value={text} onChange={(event) => set(event.target.value)}>
              <option value="">–</option>
              {field.choices.map((choice) => (
                <option key={choice}>{choice}</option>
              ))}
            </SelectField>
          );
        }
        if (field.kind === "json") return <TextArea key={field.name} label={`${label}, as JSON`} hint={field.hint} value={text} onChange={(event) => set(event.target.value)} className="font-mono" />;
        return <TextField key={field.name} label={label} hint={field.hint} inputMode={field.kind === "text" ? "text" : "decimal"} value={text} onChange={(event) => set(event.target.value)} />;
      })}
    </div>
  );
}
