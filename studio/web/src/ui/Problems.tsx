// Everything that is wrong with the page, in words; a click goes to the block.
import type { Problem } from "../protocol/messages";
import { distinct, placeOf } from "../state/derived";
import { useActions, useStudio } from "./context";
import { Icon } from "./Icon";

export function Problems() {
  const found = useStudio((state) => state.inference.problems);
  const progress = useStudio((state) => state.progress);
  const failed = Object.entries(progress).flatMap(([block, { state, problem }]) =>
    state === "failed" && problem ? [{ ...problem, block: problem.block ?? block }] : [],
  );
  const problems = distinct([...failed, ...found]);
  if (problems.length === 0) return <p className="nothing">Nothing is wrong with this page.</p>;
  return (
    <ul className="problem-list scroll" data-testid="problem-list">
      {problems.map((problem) => (
        <Row key={`${problem.block} ${placeOf(problem)} ${problem.message}`} problem={problem} />
      ))}
    </ul>
  );
}

function Row({ problem }: { problem: Problem }) {
  const studio = useActions();
  const { block } = problem;
  const go = () => {
    if (!block) return;
    studio.edit.select([block]);
    studio.edit.canvas?.reveal([block]);
  };
  return (
    <li>
      <button type="button" className={problem.severity} onClick={go}>
        <Icon name={problem.severity === "error" ? "error" : "warning"} />
        <span>
          <b>
            {block ?? "The page"}
            {placeOf(problem) ? `.${placeOf(problem)}` : ""}
          </b>
          {problem.message}
        </span>
      </button>
    </li>
  );
}
