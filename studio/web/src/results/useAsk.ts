// What the server knows of a result. Only the newest question counts; while its answer is on the way the last one stays.
import { useEffect, useState } from "react";
import type { Result } from "../state/state";
import { useActions } from "../ui/context";

/** `fields` is JSON text, so that equal questions are asked once. A new run of the block asks again. */
export function useAsk<T>(type: string, fields: string, result: Result): T | null {
  const studio = useActions();
  const [answer, setAnswer] = useState<T | null>(null);
  const { summary } = result;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the summary is new whenever the values are
  useEffect(() => {
    let current = true;
    studio.client.request<T>(type, JSON.parse(fields) as object).then(
      (reply) => current && setAnswer(reply),
      (error: { code?: string }) => current && error.code !== "no_result" && studio.complain(error),
    );
    return () => {
      current = false;
    };
  }, [studio, type, fields, summary]);
  return answer;
}
